"""The images of the manifests in tests/system/manifests: stand-ins under the charts' names, of the host's shell and a
few programs, and of a Perl program of a few lines for whatever serves a port or asks one."""

import pathlib
import tempfile

from tests.supervisor.images.building import Made, docker_archive, entry, folder, tar
from tests.system import images, tinyroot

MANIFESTS = pathlib.Path(__file__).parent / "manifests"
NAMES = (
    *("nginx:1.27", "redis:7", "postgres:16", "mysql:8", "wordpress:6", "perl:5", "busybox:1.36"),
    "fluent/fluent-bit:3",
)
# Serves the port that a program of this name has; others ask it. Those that probes run say so in /tmp/asked. Of the
# charts' images nginx's and wordpress' have a curl, by which podman asks for them; none has a nc.
SERVER = rb"""#!/bin/perl
my %ports = qw(nginx 80 redis-server 6379 postgres 5432 mysqld 3306 apache2-foreground 80);
my ($name) = $0 =~ m{([^/]+)$};
$SIG{TERM} = $SIG{INT} = $SIG{QUIT} = sub { exit 0 };
sub port { pack('S n a4 x8', 2, $_[0], $_[1]) }
my %asks = qw(redis-cli 6379 pg_isready 5432 mysqladmin 3306 curl 80);
if ($asks{$name}) {
    open(F, '>>', '/tmp/asked') and print F "$name\n" and close F;
    socket(S, 2, 1, 0) && connect(S, port($asks{$name}, "\177\0\0\1")) or exit 2;
    if ($name eq 'curl') {
        syswrite(S, 'GET ' . ($ARGV[-1] =~ m{//[^/]+(/\S*)})[0] . " HTTP/1.1\r\n\r\n");
        sysread(S, my $answer, 4096) or exit 52;
    }
    print "PONG\n";
    exit 0;
}
$| = 1;
print "$name @ARGV\n";
for (@ARGV) { open(F, '<', $_) and print <F>; }
socket(L, 2, 1, 0) or die $!;
setsockopt(L, 1, 2, pack('i', 1));
bind(L, port($ports{$name}, "\0\0\0\0")) or die $!;
listen(L, 16) or die $!;
while (accept(C, L)) {
    if ($ports{$name} == 80 && sysread(C, my $ask, 4096)) {
        my ($path) = $ask =~ m{^GET (\S+)};
        print join(' ', $path, $ask =~ m{^(X-Probe: \w+)}m), "\n";
        syswrite(C, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok\n");
    }
    close C;
}
"""
PROGRAMS = (
    *("nginx", "redis-server", "redis-cli", "postgres", "pg_isready", "mysqld", "mysqladmin", "apache2-foreground"),
    "curl",
)


def archive() -> bytes:
    """One image under all names, as `docker save` writes it."""
    with tempfile.TemporaryDirectory() as directory:
        return docker_archive((_stand_in(pathlib.Path(directory)), NAMES))


def _stand_in(directory: pathlib.Path) -> Made:
    root = tinyroot.make(directory, ("perl",))
    files = [(str(path.relative_to(root)), path.read_bytes()) for path in root.rglob("*") if path.is_file()]
    perl = tar(*((entry(name, mode=0o755), data) for name, data in files))
    served = tar(*((entry(f"bin/{name}", mode=0o755), SERVER) for name in PROGRAMS), folder("tmp", mode=0o1777))
    return Made([images.base_layer(), perl, served], {"Cmd": ["/bin/sh"], "Env": ["PATH=/bin"]})

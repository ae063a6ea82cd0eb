"""Any conversation of the two pure ends, over pipes that cut the bytes as they like."""

from dataclasses import dataclass, field

from google.protobuf.wrappers_pb2 import StringValue
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from supervisor.model.errors import Code
from supervisor.ttrpc.connection import ClientConnection, ServerConnection
from supervisor.ttrpc.faults import CallFailed
from supervisor.ttrpc.happenings import Aborted, Failed, Foreign, Opened, Received, Replied, Send, StreamEnded
from supervisor.ttrpc.services import CallKind
from tests.supervisor.ttrpc.rig import PURE, SERVICE, word

WORDS = st.text(max_size=6)


@dataclass
class Side:
    """What one end has sent on a stream, and what the other has got of it."""

    sent: list[str] = field(default_factory=list)
    got: list[str] = field(default_factory=list)
    ended: bool = False  # the sender has said so
    end_seen: bool = False


@dataclass
class Model:
    kind: CallKind
    up: Side = field(default_factory=Side)
    down: Side = field(default_factory=Side)
    opened: bool = False
    given_up: bool = False
    code: int | None = None  # with which the server ended it; 0: well
    code_seen: int | None = None


class Conversation(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.client, self.server = ClientConnection(), ServerConnection(PURE)
        self.to_server, self.to_client = b"", b""
        self.calls: dict[int, Model] = {}

    def pick(self, number: int) -> tuple[int, Model]:
        stream = sorted(self.calls)[number % len(self.calls)]
        return stream, self.calls[stream]

    @rule(kind=st.sampled_from(CallKind), text=WORDS)
    def call(self, kind: CallKind, text: str) -> None:
        request = None if kind.client_streams else word(text)
        stream, data = self.client.open(f"{SERVICE}/{kind.name}", request, StringValue, kind)
        self.calls[stream] = model = Model(kind)
        if request is not None:
            model.up.sent.append(text)
            model.up.ended = True
        self.to_server += data

    @precondition(lambda self: self.calls)
    @rule(number=st.integers(0, 20), text=WORDS, last=st.booleans())
    def client_sends(self, number: int, text: str, last: bool) -> None:
        stream, model = self.pick(number)
        takes = model.kind.client_streams and not model.up.ended and self.client.is_open(stream)
        try:
            self.to_server += self.client.send(stream, word(text))
            assert takes
            model.up.sent.append(text)
        except CallFailed as error:
            assert error.code == Code.FAILED_PRECONDITION
            assert not takes
        if last:
            self.to_server += self.client.end(stream)
            model.up.ended = model.up.ended or takes

    @precondition(lambda self: self.calls)
    @rule(number=st.integers(0, 20))
    def client_gives_up(self, number: int) -> None:
        stream, model = self.pick(number)
        model.given_up = model.given_up or self.client.is_open(stream)
        self.client.forget(stream)

    @precondition(lambda self: self.calls)
    @rule(number=st.integers(0, 20), text=WORDS, code=st.integers(0, 3), flags=st.sampled_from((0, 0x40, 0x80)))
    def server_answers(self, number: int, text: str, code: int, flags: int) -> None:
        stream, model = self.pick(number)
        if not self.server.is_open(stream):
            assert not model.opened or model.code is not None
            assert self.server.respond(stream, word(text)) == self.server.send(stream, word(text)) == b""
            return
        if code > 1:
            self.to_client += self.server.fail(stream, CallFailed(code, text), flags)
            model.code = code
        elif not model.kind.server_streams:
            self.to_client += self.server.respond(stream, word(text), flags)
            model.down.sent.append(text)
            model.code = 0
        elif code:
            self.to_client += self.server.end(stream, flags)
            model.code = 0
        else:
            self.to_client += self.server.send(stream, word(text))
            model.down.sent.append(text)

    @rule(number=st.integers(0, 300))
    def server_reads(self, number: int) -> None:
        data, self.to_server = self.to_server[:number], self.to_server[number:]
        for event in self.server.receive(data):
            match event:
                case Opened(stream, _, _, request):
                    self.calls[stream].opened = True
                    if isinstance(request, StringValue):
                        self.calls[stream].up.got.append(request.value)
                        self.calls[stream].up.end_seen = True
                case Received(stream, StringValue(value=text)):
                    self.calls[stream].up.got.append(text)
                case StreamEnded(stream):
                    self.calls[stream].up.end_seen = True
                case Send(answer):  # to messages that came after the server had ended the call
                    self.to_client += answer
                case Aborted() | Foreign():
                    raise AssertionError("no rule was broken")

    @rule(number=st.integers(0, 300))
    def client_reads(self, number: int) -> None:
        data, self.to_client = self.to_client[:number], self.to_client[number:]
        for event in self.client.receive(data):
            model = self.calls[event.stream]
            assert model.code_seen is None and not model.given_up
            match event:
                case Received(_, StringValue(value=text)):
                    model.down.got.append(text)
                case Replied(_, StringValue(value=text)):
                    model.down.got.append(text)
                    model.code_seen = 0
                case StreamEnded():
                    model.code_seen = 0
                case Failed(_, error):
                    model.code_seen = error.code

    @invariant()
    def nothing_is_made_up_reordered_or_lost_in_the_middle(self) -> None:
        for model in self.calls.values():
            for side in (model.up, model.down):
                assert side.got == side.sent[: len(side.got)]
            assert model.code_seen in (None, model.code)
            assert not model.up.end_seen or (model.up.ended and model.up.got == model.up.sent)
            assert model.code_seen != 0 or model.down.got == model.down.sent

    @invariant()
    def what_is_open_is_what_nobody_has_ended(self) -> None:
        for stream, model in self.calls.items():
            assert self.client.is_open(stream) == (model.code_seen is None and not model.given_up)
            assert self.server.is_open(stream) == (model.opened and model.code is None)

    def teardown(self) -> None:
        """Everything arrives in the end, and what was answered has been heard."""
        self.server_reads(len(self.to_server))
        self.client_reads(len(self.to_client))
        for model in self.calls.values():
            assert model.opened
            assert model.given_up or model.code_seen == model.code
            assert model.code is not None or (model.up.got == model.up.sent and model.up.end_seen == model.up.ended)


Conversation.TestCase.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
TestConversation = Conversation.TestCase

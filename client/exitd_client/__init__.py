"""Run containers on exitd and learn how they ended: `Client` blocks, `AsyncClient` is for asyncio."""

from exitd_client.aio import AsyncClient as AsyncClient
from exitd_client.client import Client as Client
from exitd_client.errors import *  # noqa: F403
from exitd_client.spec import Device as Device
from exitd_client.spec import Health as Health
from exitd_client.spec import HostEntry as HostEntry
from exitd_client.spec import Limits as Limits
from exitd_client.spec import Log as Log
from exitd_client.spec import Mount as Mount
from exitd_client.spec import Resolver as Resolver
from exitd_client.spec import Rights as Rights
from exitd_client.spec import Security as Security
from exitd_client.spec import SpecFields as SpecFields
from exitd_client.spec import Ulimit as Ulimit
from exitd_client.values import By as By
from exitd_client.values import Container as Container
from exitd_client.values import Event as Event
from exitd_client.values import Exec as Exec
from exitd_client.values import ExecResult as ExecResult
from exitd_client.values import Exit as Exit
from exitd_client.values import Image as Image
from exitd_client.values import LogPart as LogPart
from exitd_client.values import Names as Names
from exitd_client.values import Oom as Oom
from exitd_client.values import Process as Process
from exitd_client.values import Version as Version

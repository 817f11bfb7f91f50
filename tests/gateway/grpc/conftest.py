"""A gateway with its gRPC door open, and clients for it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import pytest

from groundwatch.gateway.grpc.generated import monitor_pb2 as pb
from groundwatch.gateway.grpc.generated.monitor_pb2_grpc import MonitorServiceStub

StubFactory = Callable[..., Awaitable[Any]]


@pytest.fixture
async def stub_factory() -> AsyncIterator[StubFactory]:
    """Makes stubs for gateways, each with a connection of its own."""
    async with contextlib.AsyncExitStack() as stack:

        async def make(gateway: Any) -> Any:
            channel = grpc.aio.insecure_channel(f"127.0.0.1:{gateway.service.grpc_port}")
            await stack.enter_async_context(channel)
            return MonitorServiceStub(channel)

        yield make


@pytest.fixture
async def gateway(gateway_factory: Any) -> Any:
    """A gateway with both doors."""
    return await gateway_factory(grpc_port=0)


@pytest.fixture
async def stub(gateway: Any, stub_factory: StubFactory) -> Any:
    """A client of it."""
    return await stub_factory(gateway)


@pytest.fixture
def message() -> Callable[[dict[str, Any]], pb.Response]:
    """What is sent over HTTP, as the same message."""

    def make(said: dict[str, Any]) -> pb.Response:
        known = said.get("reference")
        reference = None
        if known is not None:
            reference = pb.Reference(
                facts=[pb.KnownFact(**fact) for fact in known.get("facts", ())],
                objects=known.get("objects", ()),
                triplets=[
                    pb.Triplet(subject=s, relation=r, object=o) for s, r, o in known.get("triplets", ())
                ],
                complete=known.get("complete", False),
            )
        images = [
            pb.Image(**image)
            if isinstance(image, dict)
            else pb.Image(sha256=image)
            if isinstance(image, str)
            else pb.Image(data=image)
            for image in said.get("images", ())
        ]
        before = said.get("earlier_images", 0)
        earlier = pb.Earlier(text=said["earlier"], images=images[:before]) if "earlier" in said else None
        structured = ("reference", "images", "earlier", "earlier_images")
        plain = {name: value for name, value in said.items() if name not in structured}
        return pb.Response(**plain, reference=reference, images=images[before:], earlier=earlier)

    return make

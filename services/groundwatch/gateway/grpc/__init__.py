"""The gRPC server: the same core as HTTP, behind proto/groundwatch/v1/monitor.proto."""

from groundwatch.gateway.grpc.server import GrpcServer

__all__ = ["GrpcServer"]

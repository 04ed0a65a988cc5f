"""Secret Manager on one machine: the calls of the service that Pombo makes, over gRPC."""

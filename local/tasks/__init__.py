"""Cloud Tasks on one machine: an emulator that the unmodified google-cloud-tasks client talks to over gRPC or REST."""

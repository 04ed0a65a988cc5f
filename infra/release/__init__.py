"""Release: how a commit becomes what runs in a project. The files for Cloud Build and the Makefile call this."""

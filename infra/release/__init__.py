"""Release: how a commit becomes what runs in a project. cloudbuild.yaml and the Makefile call what is here."""

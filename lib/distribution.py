"""The name of the package that pip installs."""

DISTRIBUTION = "concord-nnp"

"""The archives of the command line, one for each platform, and the manifest by which Krew installs them."""

"""The version of fedquilt, in one place."""

VERSION = "0.1.0"

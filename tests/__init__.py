"""Not a namespace: an installed package that brings tests of that name would be imported in its place."""

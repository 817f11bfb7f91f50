"""Hostile input from outside: requests, sockets, images and files that nobody sends who means well."""

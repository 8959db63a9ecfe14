"""Downloads files, and reads untrusted ones safely; imports no other room."""

"""Commands for those who maintain the pages; nothing imports them."""

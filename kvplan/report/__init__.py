"""Results in, strings out. Screens are lists of styled lines; nothing here prints."""

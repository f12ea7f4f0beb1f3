"""Single items: what every intervention did to one question, for the page and for the terminal."""

"""Questions that went through CSV twice: the second layer of quotation marks is undone."""


def quoted_once(text: object) -> object:
    """`"Who wrote ""Emma""?"` as `Who wrote "Emma"?`; anything that is not such a quoted text as it is."""
    if not isinstance(text, str) or len(text) < 2 or not (text.startswith('"') and text.endswith('"')):
        return text
    inner = text[1:-1]
    # Only a text whose inner marks are all doubled can come out of CSV.
    return inner.replace('""', '"') if '""' in inner and '"' not in inner.replace('""', "") else text

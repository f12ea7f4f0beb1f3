"""Options that take one of a few words, with these words."""

from anchorscope.options import option_of
from anchorscope.recipe import Recipe

CHOICES = {
    name: option_of(field).choices
    for name, field in Recipe.model_fields.items()
    if option_of(field).choices and field.annotation is str
}

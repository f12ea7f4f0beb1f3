"""The generators, and how often each is asked."""

from hostile import options, question_files
from hostile.case import Generator

GENERATORS = (
    Generator("question-files", question_files.make, share=40, in_tests=90),
    Generator("options", options.make, share=25, in_tests=90),
)

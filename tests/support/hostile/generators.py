"""The generators, and how often each is asked."""

from hostile import folders, model_folders, options, question_files, step_damage
from hostile.case import Generator

GENERATORS = (
    Generator("question-files", question_files.make, share=40, in_tests=36),
    Generator("options", options.make, share=22, in_tests=28),
    Generator("folders", folders.make, share=16, in_tests=16),
    Generator("model-folders", model_folders.make, share=14, in_tests=16),
    Generator("step-damage", step_damage.make, share=8, in_tests=10),
)

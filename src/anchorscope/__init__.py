"""anchorscope: where does a language model's sense of truth come from, the question or the answer?"""

from pass_cases import sensitive as sensitive

"""What will be run, as pure data: passes over the items, every random draw made, every batch decided."""

"""Made worlds in which every item's pathway is known and hard to see: which rule may be believed in which of them."""

"""Labels on their way in: as given, as corrected, as a person decided, as published lists say."""

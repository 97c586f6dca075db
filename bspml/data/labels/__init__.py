"""Labels on their way in: as given, as corrected, as the user decided, as published lists say."""

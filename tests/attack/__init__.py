"""The mass attack: many lives at once under seeded misfortunes, and a judge of what exitd reported about them."""

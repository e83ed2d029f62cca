"""Where to cut, and who gets how much of the band: profile, fleet and clock in, a certified plan out."""

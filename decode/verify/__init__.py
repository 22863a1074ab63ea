"""Rules that decide which drafted tokens a target model keeps, as pure functions: docs/verification.md."""

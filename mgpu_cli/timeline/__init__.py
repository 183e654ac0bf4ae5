"""Who had the cards when: from the scheduler's events to a picture, a trace and a table."""

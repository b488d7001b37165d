-- What a program tells of itself: how many steps it has in all (0: not told), and what rank 0 did at its end.
ALTER TABLE jobs ADD COLUMN total_steps INTEGER NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN program_status TEXT NOT NULL DEFAULT '';

-- Rows of ranks that came after the rows of their steps had aged out, and so are in no curve.
ALTER TABLE metric_attempts ADD COLUMN left_out INTEGER NOT NULL DEFAULT 0;

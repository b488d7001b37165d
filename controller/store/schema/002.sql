-- Attempts that wait in a scheduler's queue before they start.
ALTER TABLE attempts ADD COLUMN queued_at_ms INTEGER;

-- Jobs submitted together as one sweep; null: on its own.
ALTER TABLE jobs ADD COLUMN sweep TEXT;
ALTER TABLE jobs ADD COLUMN sweep_index INTEGER;
CREATE INDEX jobs_by_sweep ON jobs (sweep, id) WHERE sweep IS NOT NULL;

-- Which nodes were lost lately.
CREATE INDEX node_losses ON events (at_ms) WHERE type = 'node_lost';

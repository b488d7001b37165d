-- A curve of a million steps is drawn from these: what is kept of a bucket of 32, 1,024 or 32,768 steps (level 0, 1, 2)
-- of one curve. They repeat what rank_steps and series_values hold, and can be made from them at any time.
CREATE TABLE metric_buckets (
  job_id     INTEGER NOT NULL,
  attempt    INTEGER NOT NULL,
  level      INTEGER NOT NULL,
  bucket     INTEGER NOT NULL,                            -- first step / width
  curve      INTEGER NOT NULL,                            -- 0: the steps; 1 to 3: what ranks measure; from 8: series 1, 2, ...
  "values"   INTEGER NOT NULL,                            -- how many there are
  low_step   INTEGER, low_at_ms  INTEGER, low  REAL,      -- null: no value is a number
  high_step  INTEGER, high_at_ms INTEGER, high REAL,
  last_step  INTEGER, last_at_ms INTEGER, last REAL,
  gap_step   INTEGER, gap_at_ms  INTEGER,                 -- the first value that is no number; null: there is none
  PRIMARY KEY (job_id, attempt, level, bucket, curve)
) STRICT, WITHOUT ROWID;

-- Attempts whose steps are still to be put into buckets.
CREATE TABLE unsettled_attempts (
  job_id  INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  PRIMARY KEY (job_id, attempt)
) STRICT, WITHOUT ROWID;
INSERT INTO unsettled_attempts SELECT job_id, number FROM attempts;

-- The whole schema of the database of metrics, beside that of jobs, as of the first version that is released.

CREATE TABLE meta (
  key   TEXT PRIMARY KEY,
  value TEXT NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO meta (key, value) VALUES ('min_reader', '2');

-- Numbers with names that ranks report.
CREATE TABLE series (
  job_id         INTEGER NOT NULL,
  id             INTEGER NOT NULL CHECK (id > 0),         -- in the order in which the series first appeared
  name           TEXT    NOT NULL,
  unit           TEXT    NOT NULL,
  better         TEXT    NOT NULL,
  over_ranks     TEXT    NOT NULL,
  newest_attempt INTEGER,                                 -- null: the series has no value
  newest_step    INTEGER,
  PRIMARY KEY (job_id, id),
  UNIQUE (job_id, name)
) STRICT, WITHOUT ROWID;

-- Rows of single ranks. They tell whether a row has come before, and age out first. A real is null if it is "not a
-- number".
CREATE TABLE series_values (
  job_id  INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  step    INTEGER NOT NULL,
  series  INTEGER NOT NULL,
  rank    INTEGER NOT NULL,
  value   REAL,
  PRIMARY KEY (job_id, attempt, step, series, rank)
) STRICT, WITHOUT ROWID;

-- What one rank measured of itself in one optimizer step; null: not measured.
CREATE TABLE rank_steps (
  job_id             INTEGER NOT NULL,
  attempt            INTEGER NOT NULL,
  step               INTEGER NOT NULL,
  rank               INTEGER NOT NULL,
  step_ms            REAL,
  memory_bytes       INTEGER,
  memory_peak_bytes  INTEGER,
  bytes_communicated INTEGER,
  at_ms              INTEGER NOT NULL,
  PRIMARY KEY (job_id, attempt, step, rank)
) STRICT, WITHOUT ROWID;

-- One step over all ranks that have told it, written with their rows. Everything that people see is read from here.
CREATE TABLE step_rows (
  job_id             INTEGER NOT NULL,
  attempt            INTEGER NOT NULL,
  step               INTEGER NOT NULL,
  ranks              INTEGER NOT NULL,                    -- how many have told it
  is_told            INTEGER NOT NULL,                    -- 1: by rank 0; until then nobody sees the step
  at_ms              INTEGER NOT NULL,                    -- rank 0's, once it has told
  step_ms            REAL,                                -- the most of a rank, as the next two
  memory_bytes       INTEGER,
  memory_peak_bytes  INTEGER,
  bytes_communicated INTEGER,                             -- of all ranks
  series             BLOB,                                -- see store::encode_values(); null: no value
  PRIMARY KEY (job_id, attempt, step)
) STRICT, WITHOUT ROWID;

-- The points that a bucket of one curve keeps. A bucket holds 32, 1,024 or 32,768 steps (level 0, 1, 2). Buckets are
-- made from step rows, and stay when these have aged out.
CREATE TABLE metric_buckets (
  job_id     INTEGER NOT NULL,
  attempt    INTEGER NOT NULL,
  level      INTEGER NOT NULL,
  bucket     INTEGER NOT NULL,                            -- first step / width
  curve      INTEGER NOT NULL,                            -- 0: the steps; 1 to 3: measures of ranks; from 8: series 1, 2, ...
  "values"   INTEGER NOT NULL,                            -- how many were reported
  low_step   INTEGER, low_at_ms  INTEGER, low  REAL,      -- null: no value is a number
  high_step  INTEGER, high_at_ms INTEGER, high REAL,
  last_step  INTEGER, last_at_ms INTEGER, last REAL,
  gap_step   INTEGER, gap_at_ms  INTEGER,                 -- the first value that is no number; null: none
  PRIMARY KEY (job_id, attempt, level, bucket, curve)
) STRICT, WITHOUT ROWID;

-- Attempts that have told a step, and what of them has aged out. Null: nothing.
CREATE TABLE metric_attempts (
  job_id         INTEGER NOT NULL,
  attempt        INTEGER NOT NULL,
  rank_rows_from INTEGER,                                 -- rows of single ranks of earlier steps have aged out
  step_rows_from INTEGER,                                 -- step rows of earlier steps, too
  left_out       INTEGER NOT NULL DEFAULT 0,              -- rows that came when the rows of their steps had aged out
  PRIMARY KEY (job_id, attempt)
) STRICT, WITHOUT ROWID;

-- The hours, by the controller's clock, in which rows of an attempt were stored. Rows age by these, since the clocks of
-- ranks may be wrong. The rows of an hour are those of the steps after `after_step`, up to that of the next hour.
CREATE TABLE metric_hours (
  job_id     INTEGER NOT NULL,
  attempt    INTEGER NOT NULL,
  hour       INTEGER NOT NULL,                            -- since 1970
  after_step INTEGER NOT NULL,
  is_summed  INTEGER NOT NULL DEFAULT 0,                  -- 1: the rows of single ranks have aged out
  PRIMARY KEY (job_id, attempt, hour)
) STRICT, WITHOUT ROWID;
CREATE INDEX metric_hours_to_age ON metric_hours (is_summed, hour);

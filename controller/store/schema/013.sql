-- The whole schema of the database of jobs, as of the first version that is released.

-- What happened, in the order in which the controller learned it. Every other table about jobs can be rebuilt from events.
CREATE TABLE events (
  id          INTEGER PRIMARY KEY AUTOINCREMENT,
  job_id      INTEGER NOT NULL REFERENCES jobs (id),
  version     INTEGER NOT NULL CHECK (version > 0),
  at_ms       INTEGER NOT NULL,
  type        TEXT    NOT NULL,
  attempt     INTEGER NOT NULL,                          -- 0: about the whole job
  payload     TEXT    NOT NULL CHECK (json_valid(payload)),
  state_after TEXT    NOT NULL,
  text        TEXT    NOT NULL,
  UNIQUE (job_id, version)
) STRICT;
CREATE TRIGGER events_are_never_changed BEFORE UPDATE ON events
BEGIN SELECT RAISE (ABORT, 'events are append-only'); END;
CREATE TRIGGER events_are_never_deleted BEFORE DELETE ON events
BEGIN SELECT RAISE (ABORT, 'events are append-only'); END;

-- Projections, written in the transaction of the event that changed them.
CREATE TABLE jobs (
  id                   INTEGER PRIMARY KEY,
  request_id           TEXT    UNIQUE,                   -- null: submitted without one
  spec_json            TEXT    NOT NULL,
  name                 TEXT    NOT NULL,
  user                 TEXT    NOT NULL,
  is_command           INTEGER NOT NULL CHECK (is_command IN (0, 1)),
  state                TEXT    NOT NULL,
  reason               TEXT    NOT NULL,
  version              INTEGER NOT NULL,
  last_checkpoint_step INTEGER NOT NULL,
  submitted_at_ms      INTEGER NOT NULL,
  started_at_ms        INTEGER,
  ended_at_ms          INTEGER,
  next_attempt_at_ms   INTEGER,
  sweep                TEXT,                             -- submitted together with others; null: on its own
  sweep_index          INTEGER,
  total_steps          INTEGER NOT NULL DEFAULT 0,       -- 0: the program has not told how many it has
  program_status       TEXT    NOT NULL DEFAULT ''       -- what rank 0 did at its end
) STRICT;
CREATE INDEX jobs_by_state ON jobs (state, id);
CREATE INDEX jobs_by_sweep ON jobs (sweep, id) WHERE sweep IS NOT NULL;

CREATE TABLE attempts (
  job_id            INTEGER NOT NULL REFERENCES jobs (id),
  number            INTEGER NOT NULL CHECK (number > 0),
  state             TEXT    NOT NULL,
  cause             TEXT    NOT NULL,
  reason            TEXT    NOT NULL,
  reason_started    TEXT    NOT NULL,
  culprit           INTEGER,
  culprit_code      INTEGER,
  culprit_signal    INTEGER,
  started_at_ms     INTEGER,
  running_at_ms     INTEGER,
  ended_at_ms       INTEGER,
  resumed_from_step INTEGER NOT NULL,                    -- -1: not reported
  handle            TEXT    NOT NULL,
  queued_at_ms      INTEGER,                             -- null: it did not wait in a scheduler's queue
  scheduler_job     INTEGER,
  scheduler_element INTEGER,
  PRIMARY KEY (job_id, number)
) STRICT, WITHOUT ROWID;

-- Which nodes were lost lately.
CREATE INDEX node_losses ON events (at_ms) WHERE type = 'node_lost';

-- The outbox: what the controller has to do outside the database. An action is pending, launching (an executor is asked,
-- or was) or done. An attempt whose start is launching may be there already.
CREATE TABLE actions (
  id         INTEGER PRIMARY KEY AUTOINCREMENT,
  event_id   INTEGER NOT NULL REFERENCES events (id),
  idx        INTEGER NOT NULL,
  job_id     INTEGER NOT NULL REFERENCES jobs (id),
  kind       TEXT    NOT NULL,
  payload    TEXT    NOT NULL CHECK (json_valid(payload)),
  done_at_ms INTEGER,                                    -- null: not done yet
  state      TEXT    NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'launching', 'done')),
  share      TEXT CHECK (share IS NULL OR json_valid(share)), -- of musterd's own machine; null: nothing
  UNIQUE (event_id, idx)
) STRICT;
CREATE INDEX actions_to_do ON actions (id) WHERE state <> 'done';

-- min_reader: the schema version that a muster must know to work with this database, see [Note: schemas of neighbouring
-- versions].
CREATE TABLE meta (
  key   TEXT PRIMARY KEY,
  value TEXT NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO meta (key, value) VALUES ('min_reader', '13');

-- What admins decide about Slurm's partitions.
CREATE TABLE partitions (
  name   TEXT PRIMARY KEY,
  policy TEXT NOT NULL CHECK (json_valid(policy))
) STRICT, WITHOUT ROWID;

-- Which admin changed what when, for ever.
CREATE TABLE audit (
  id        INTEGER PRIMARY KEY AUTOINCREMENT,
  at_ms     INTEGER NOT NULL,
  user      TEXT    NOT NULL,
  action    TEXT    NOT NULL,
  partition TEXT    NOT NULL,                            -- '': about all of musterd
  before    TEXT    NOT NULL CHECK (before = '' OR json_valid(before)),
  after     TEXT    NOT NULL CHECK (after = '' OR json_valid(after))
) STRICT;
CREATE INDEX audit_by_partition ON audit (partition, id);
CREATE TRIGGER audit_is_never_changed BEFORE UPDATE ON audit
BEGIN SELECT RAISE (ABORT, 'the audit is append-only'); END;
CREATE TRIGGER audit_is_never_deleted BEFORE DELETE ON audit
BEGIN SELECT RAISE (ABORT, 'the audit is append-only'); END;

-- Jobs that a person removed. Their events stay; everything else about them is deleted. This is a table of its own, so
-- that lists need not read the rows of jobs, which are large.
CREATE TABLE removed_jobs (
  job_id INTEGER PRIMARY KEY REFERENCES jobs (id),
  at_ms  INTEGER NOT NULL
) STRICT;

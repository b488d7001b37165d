-- Jobs that a person has removed: their history stays, everything else about them goes. A table of its own, so that lists
-- find out without reading the jobs' rows, which are large.
CREATE TABLE removed_jobs (
  job_id INTEGER PRIMARY KEY REFERENCES jobs (id),
  at_ms  INTEGER NOT NULL
) STRICT;

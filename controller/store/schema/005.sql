-- Jobs that a person removed. Their events stay; everything else about them is deleted. This is a table of its own, so
-- that lists need not read the rows of jobs, which are large.
CREATE TABLE removed_jobs (
  job_id INTEGER PRIMARY KEY REFERENCES jobs (id),
  at_ms  INTEGER NOT NULL
) STRICT;

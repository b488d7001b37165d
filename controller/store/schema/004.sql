-- Until then 0 stood for "from the beginning" and for "nobody has told", which is what it was for nearly every program of a
-- user's own. From now on -1 is "nobody has told".
UPDATE attempts SET resumed_from_step = -1
WHERE resumed_from_step = 0 AND job_id IN (SELECT id FROM jobs WHERE is_command = 1);

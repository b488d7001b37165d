-- The plain keys of [slurm] are entries of slurm.values, by the names of their keys.
UPDATE jobs SET spec_json = json_set(
  json_remove(spec_json, '$.slurm.partition', '$.slurm.account', '$.slurm.qos', '$.slurm.constraint', '$.slurm.gres',
    '$.slurm.reservation', '$.slurm.exclude', '$.slurm.nodelist', '$.slurm.mem_bytes', '$.slurm.mem_per_cpu_bytes',
    '$.slurm.mem_per_gpu_bytes', '$.slurm.exclusive', '$.slurm.nice', '$.slurm.licenses', '$.slurm.mail_user',
    '$.slurm.mail_type', '$.slurm.health_check', '$.slurm.output', '$.slurm.array_parallelism'),
  '$.slurm.values',
  json((SELECT json_group_object('slurm.' || replace(key, '_bytes', ''),
                 json(CASE type WHEN 'true' THEN '{"flag":true}' WHEN 'integer' THEN json_object('whole', value)
                                ELSE json_object('text', value) END))
        FROM json_each(jobs.spec_json, '$.slurm')
        WHERE key NOT IN ('setup', 'teardown', 'srun_args', 'options', 'values') AND type IN ('true', 'integer', 'text')
          AND value <> '' AND (value <> 0 OR key = 'nice'))))
WHERE json_type(spec_json, '$.slurm') = 'object';

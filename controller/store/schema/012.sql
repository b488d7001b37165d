-- Metrics are in a database of their own, metrics.db. An opening has copied them there before it comes to this version.
DROP TABLE rank_steps;
DROP TABLE series_values;
DROP TABLE series;
DROP TABLE metric_buckets;
DROP TABLE unsettled_attempts;

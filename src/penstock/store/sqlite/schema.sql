-- name: columns_of_schema_version
SELECT name FROM pragma_table_info('schema_version');

-- name: taken_names
SELECT name FROM sqlite_master
WHERE name IN (SELECT value FROM json_each(:names))
ORDER BY name;

-- name: versions
SELECT version, checksum, min_compatible, database_id FROM schema_version ORDER BY version;

-- name: record_migration
INSERT INTO schema_version (version, name, checksum, min_compatible, database_id, applied_at)
VALUES (:version, :name, :checksum, :min_compatible, :database_id, :now);

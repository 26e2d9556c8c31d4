-- name: columns_of_schema_version
SELECT name FROM pragma_table_info('schema_version');

-- name: database_file
SELECT file FROM pragma_database_list WHERE name = 'main';

-- name: take_write_lock
-- Changes nothing, and gets the lock. Reading first would be a mistake: in a transaction that
-- began as a read, SQLite does not wait for another writer but fails at once.
UPDATE schema_version SET database_id = database_id WHERE false;

-- name: taken_names
SELECT name FROM sqlite_master
WHERE name IN (SELECT value FROM json_each(:names))
ORDER BY name;

-- name: versions
SELECT version, checksum, min_compatible, database_id FROM schema_version ORDER BY version;

-- name: record_migration
INSERT INTO schema_version (version, name, checksum, min_compatible, database_id, applied_at)
VALUES (:version, :name, :checksum, :min_compatible, :database_id, :now);

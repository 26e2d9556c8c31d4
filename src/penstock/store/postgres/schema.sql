-- name: has_tables
SELECT EXISTS (
    SELECT FROM pg_catalog.pg_class AS found
    JOIN pg_catalog.pg_namespace AS home ON home.oid = found.relnamespace
    WHERE home.nspname = 'penstock' AND found.relname = 'schema_version'
);

-- name: versions
SELECT version, checksum, min_compatible, database_id::text FROM penstock.schema_version ORDER BY version;

-- name: create_schema
CREATE SCHEMA IF NOT EXISTS penstock;

-- name: lock_migrations
-- One process migrates, the others wait and then find nothing to do.
SELECT pg_advisory_xact_lock(hashtextextended('penstock', 0));

-- name: record_migration
INSERT INTO penstock.schema_version (version, name, checksum, min_compatible, database_id)
VALUES (:version, :name, :checksum, :min_compatible, :database_id::uuid);

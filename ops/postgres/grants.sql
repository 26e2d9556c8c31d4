-- Least privilege: who may do what in the schema `penstock`. Run it as the owner of the schema
-- (the role that ran `penstock admin migrate`), after every migration:
--
--     psql "$OWNER_URL" -v ON_ERROR_STOP=1 -f grants.sql
--
-- The roles have no password and cannot log in. Give them to those that can:
--
--     CREATE ROLE shop LOGIN PASSWORD '…' IN ROLE penstock_enqueuer;
--
-- Nobody but the owner may change tables, and nothing here lets anybody read other schemas.

DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'penstock_enqueuer') THEN
        CREATE ROLE penstock_enqueuer;
    END IF;
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'penstock_worker') THEN
        CREATE ROLE penstock_worker;
    END IF;
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'penstock_monitor') THEN
        CREATE ROLE penstock_monitor;
    END IF;
END
$$;

-- Every function is everybody's at first.
REVOKE ALL ON FUNCTION penstock.wake_channel(text) FROM PUBLIC;

-- Enqueues, and reads what became of it.
GRANT USAGE ON SCHEMA penstock TO penstock_enqueuer;
GRANT SELECT ON penstock.schema_version TO penstock_enqueuer;
GRANT SELECT, INSERT, UPDATE ON penstock.task_executions TO penstock_enqueuer;
GRANT INSERT ON penstock.task_outbox TO penstock_enqueuer;
GRANT SELECT, INSERT ON penstock.execution_events TO penstock_enqueuer;
GRANT SELECT, INSERT, UPDATE ON penstock.serials TO penstock_enqueuer;
GRANT SELECT, INSERT ON penstock.workflow_executions TO penstock_enqueuer;
GRANT SELECT, INSERT ON penstock.signals TO penstock_enqueuer;
GRANT INSERT ON penstock.task_wakes TO penstock_enqueuer;
GRANT EXECUTE ON FUNCTION penstock.wake_channel(text) TO penstock_enqueuer;

-- Works: everything that `penstock worker` does, retention too.
GRANT USAGE ON SCHEMA penstock TO penstock_worker;
GRANT SELECT ON penstock.schema_version TO penstock_worker;
GRANT SELECT, INSERT, UPDATE, DELETE ON penstock.task_executions TO penstock_worker;
GRANT SELECT, INSERT, UPDATE, DELETE ON penstock.task_outbox TO penstock_worker;
GRANT SELECT, INSERT, DELETE ON penstock.execution_events TO penstock_worker;
GRANT SELECT, INSERT, UPDATE, DELETE ON penstock.workers TO penstock_worker;
GRANT SELECT ON penstock.paused_queues TO penstock_worker;
GRANT SELECT, INSERT, UPDATE, DELETE ON penstock.serials TO penstock_worker;
GRANT SELECT, INSERT, UPDATE, DELETE ON penstock.propagations TO penstock_worker;
GRANT SELECT, INSERT, DELETE ON penstock.once_ledger TO penstock_worker;
GRANT SELECT, INSERT, UPDATE, DELETE ON penstock.workflow_executions TO penstock_worker;
GRANT SELECT, INSERT, UPDATE, DELETE ON penstock.run_propagations TO penstock_worker;
GRANT SELECT, INSERT, DELETE ON penstock.step_results TO penstock_worker;
GRANT SELECT, INSERT, DELETE ON penstock.signals TO penstock_worker;
GRANT SELECT, INSERT, UPDATE, DELETE ON penstock.task_wakes TO penstock_worker;
GRANT EXECUTE ON FUNCTION penstock.wake_channel(text) TO penstock_worker;

-- Looks: `penstock metrics`, `status`, `list`, `show`, `history`. Make it a member of pg_monitor
-- (as a superuser) if it is to see how old other roles' transactions are.
GRANT USAGE ON SCHEMA penstock TO penstock_monitor;
GRANT SELECT ON penstock.schema_version TO penstock_monitor;
GRANT SELECT ON penstock.task_executions TO penstock_monitor;
GRANT SELECT ON penstock.task_outbox TO penstock_monitor;
GRANT SELECT ON penstock.execution_events TO penstock_monitor;
GRANT SELECT ON penstock.workers TO penstock_monitor;
GRANT SELECT ON penstock.paused_queues TO penstock_monitor;
GRANT SELECT ON penstock.workflow_executions TO penstock_monitor;

#!/bin/bash
# Run once by the postgres image, as its superuser, on an empty data folder: the roles, database and extension of env.example.
set -euo pipefail
psql --set ON_ERROR_STOP=1 --set owner="$KOLM_OWNER_PASSWORD" --set app="$KOLM_APP_PASSWORD" -U postgres <<'SQL'
CREATE ROLE kolm_owner LOGIN NOSUPERUSER NOBYPASSRLS PASSWORD :'owner';
CREATE ROLE kolm_app LOGIN NOSUPERUSER NOBYPASSRLS PASSWORD :'app';
CREATE DATABASE kolm OWNER kolm_owner;
\connect kolm
CREATE EXTENSION vector;
ALTER ROLE kolm_app SET hnsw.iterative_scan = 'strict_order';
ALTER ROLE kolm_app SET track_activities = off;
SQL

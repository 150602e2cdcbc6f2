#!/bin/sh
# Runs a service by its name, the health command, or any other command of the image.
case "$1" in
    store-writer) shift; exec python -m mqstore.writer "$@" ;;
    query) shift; exec python -m mqstore.query "$@" ;;
    coordinator) shift; exec python -m mqstore.coordinator "$@" ;;
    health) exec python /usr/local/lib/mqstore/health.py ;;
    *) exec "$@" ;;
esac

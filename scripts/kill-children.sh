# Sourced by the scripts that run others in the background: a signal to a script reaches only the script.
kill_with_children() {
    local child
    for child in $(pgrep -P "$1"); do
        kill_with_children "$child"
    done
    kill "$1" 2>/dev/null || true
}

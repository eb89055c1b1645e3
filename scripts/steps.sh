# For the scripts that set up, which source it: one line for each step, and nothing of what programs
# say unless one fails. All of it is kept in build/setup.log.

setup_log=build/setup.log

start_steps() {
  mkdir -p build
  : >"$setup_log"
}

# step WORDS COMMAND...   Says WORDS, runs the command, and when it fails shows its last lines.
step() {
  local words=$1 status=0
  shift
  echo "  $words"
  printf '== %s\n' "$words" >>"$setup_log"
  "$@" >>"$setup_log" 2>&1 || status=$?
  if [ "$status" -ne 0 ]; then
    failed "$words"
  fi
  return "$status"
}

failed() { # WORDS
  {
    echo "${0##*/}: this failed: $1. Its last lines:"
    awk '/^== / { said = ""; next } { said = said "    " $0 "\n" } END { printf "%s", said }' \
      "$setup_log" | tail -n 20
    echo "Fix: mend what they say and run the command again; $setup_log has all of it."
  } >&2
}

#!/bin/sh
# A browser for the tests of the pages. Where none is there it is installed, if this is a Debian system and we may;
# otherwise those tests are skipped, and this says so. Never fails: all other tests can run without it.
if [ -n "$ANCHORSCOPE_CHROMIUM" ]; then exit 0; fi
for name in chromium chromium-browser google-chrome; do
  if command -v "$name" > /dev/null; then exit 0; fi
done
if [ "$(id -u 2> /dev/null)" = 0 ] && command -v apt-get > /dev/null; then
  echo "Installing chromium for the tests of the pages …"
  export DEBIAN_FRONTEND=noninteractive
  { apt-get install --yes --no-install-recommends chromium ||
    { apt-get update && apt-get install --yes --no-install-recommends chromium; }; } > /dev/null 2>&1
fi
if ! command -v chromium > /dev/null; then
  echo "No browser: the tests of the pages will be skipped. Install chromium, or name one in ANCHORSCOPE_CHROMIUM."
fi
exit 0

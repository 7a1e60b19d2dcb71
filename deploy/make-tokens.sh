#!/bin/sh
# make-tokens.sh STORE FOLDER: a token that may write and one that may read, as files, unless they are there.
# Whoever can read the folder can use the service.
set -eu
store=$1 folder=$2
for scope in write read; do
  if [ ! -s "$folder/$scope" ]; then
    calibeat token create --store "$store" --scope "$scope" --name "compose-$scope-$(date +%s)" > "$folder/$scope.new"
    chmod 644 "$folder/$scope.new"  # Prometheus reads it as another user
    mv "$folder/$scope.new" "$folder/$scope"
  fi
done

"""Take each remedy of the lab away and see that its test fails: a part of `make mutants`.

A line names what an attack on the lab had found, the remedy that is broken, and the test that holds
it. Works on a copy, as `break_promises.py` does, and takes the same words.
"""

from __future__ import annotations

import sys

from break_promises import Break, main

CHECKPOINTS, CLAIM = "lab/training/checkpoints.py", "lab/records/claim.py"
FILES, READING, RUN = "lab/files.py", "lab/reading.py", "lab/records/run.py"
PIXELS, PARQUET = "lab/data/pixels.py", "lab/data/parquet.py"
SETTINGS, DISPATCH = "lab/config/settings_file.py", "lab/cli/dispatch.py"


def of(remedy: str, file: str, old: str, new: str, test: str) -> Break:
    """Return a break whose test is one of the lab."""
    return Break(remedy, file, old, new, f"lab/{test}")


REMEDIES = [
    # -- 1 a finished run without its final weights
    of(
        "1 the newest file, not the index", CHECKPOINTS,
        "        for path in self._files():\n            try:\n                state = read(path)",
        "        for path in filter(None, [self.path('last')]):\n"
        "            try:\n                state = read(path)",
        "test_claim.py::test_a_run_killed_before_its_last_checkpoint_had_a_name_ends_with_it",
    ),
    of(
        "1 finished with its weights", CHECKPOINTS,
        "            return not self._files() or _intact(self.path(\"last\"))\n",
        "            return True\n",
        "test_claim.py::test_a_finished_run_gets_damaged_final_weights_back",
    ),
    of(
        "1 the best is known by its step", CHECKPOINTS,
        'state | {"best_step": best_step}', 'state | {"best_step": None}',
        "test_checkpoint.py::test_the_best_is_kept_however_old",
    ),
    of(
        "1 one is kept in reserve", CHECKPOINTS,
        "(self._last, self._best, *before)", "(self._last, self._best)",
        "test_checkpoint.py::test_the_newest_is_read_and_one_is_kept_in_reserve",
    ),
    # -- 2 a flipped bit
    of(
        "2 a checksum of the whole file", CHECKPOINTS,
        "    if ours and ours[2] != _digest(file)[:16]:\n", "    if False:\n",
        "test_checkpoint.py::test_no_bit_flip_goes_unnoticed",
    ),
    of(
        "2 the checksum comes first", CHECKPOINTS,
        "            _compare(file, path.name)\n            check_archive(file)\n"
        '            state = torch.load(file, map_location="cpu", weights_only=True)\n',
        '            state = torch.load(file, map_location="cpu", weights_only=True)\n'
        "            _compare(file, path.name)\n",
        "test_checkpoint.py::test_nothing_is_unpickled_before_the_check",
    ),
    of(
        "2 the one before is tried", CHECKPOINTS,
        "                damaged.append(str(path))\n                continue\n",
        "                damaged.append(str(path))\n                break\n",
        "test_checkpoint.py::test_whatever_cannot_be_read_sends_the_reader_to_the_one_before",
    ),
    of(
        "2 and it is told", CHECKPOINTS,
        "            if damaged:\n                print(",
        "            if False:\n                print(",
        "test_trainer.py::test_a_damaged_checkpoint_costs_only_the_time_since_the_one_before",
    ),
    # -- 3 a finished run overwritten
    of(
        "3 the lock comes before the data", "lab/training/trainer.py",
        "        # One process claims the folder",
        "        load_data(config)\n        # One process claims the folder",
        "test_claim.py::test_a_slow_start_keeps_others_out_from_its_first_moment",
    ),
    of(
        "3 a run that lost a record", CLAIM,
        "    if not resume and _begun(folder):\n", "    if not resume and state is not None:\n",
        "test_claim.py::test_a_run_that_lost_a_record_is_not_overwritten",
    ),
    of(
        "3 overwrite wants our mark", CLAIM,
        " and (replace or not is_run(folder)):", " and not is_run(folder):",
        "test_claim.py::test_overwrite_refuses_a_folder_without_our_mark",
    ),
    of(
        "3 a demo deletes its own runs", "lab/cli/demo_folder.py",
        "        if folder.name in ours and holds_run(folder):\n",
        "        if holds_run(folder):\n",
        "test_claim.py::test_a_fresh_demo_deletes_runs_of_demos_and_no_others",
    ),
    # -- 4 old images
    of(
        "4 files known by content", "lab/data/content.py",
        "                while chunk := file.read(1 << 20):\n"
        "                    found.update(chunk)\n",
        "                found.update(str(path.stat().st_mtime_ns).encode())\n",
        "data/test_hostile_data.py::"
        "test_a_file_replaced_under_the_same_name_and_time_is_read_again",
    ),
    of(
        "4 a run knows its images", "lab/training/resume.py",
        "    if position.data and digest and position.data != digest:\n", "    if False:\n",
        "test_other_images.py::"
        "test_a_run_cut_off_refuses_other_images_and_goes_on_with_its_own",
    ),
    # -- 5 stopped is not failed
    of(
        "5 a closed stdout", "lab/records/recorder.py",
        "isinstance(error, Exception) and not isinstance(error, BrokenPipeError)",
        "isinstance(error, Exception)",
        "test_runner.py::test_a_closed_stdout_cuts_a_run_off_and_does_not_fail_it",
    ),
    of(
        "5 a parent that has gone", "lab/runner/pool.py",
        "            except OSError:  # the parent has gone: stop as if it had asked to\n"
        "                signal.raise_signal(signal.SIGTERM)\n",
        "            except ZeroDivisionError:\n                pass\n",
        "test_runner.py::"
        "test_a_worker_whose_parent_has_gone_stops_with_a_checkpoint_and_does_not_fail",
    ),
    of(
        "5 a reader that has gone", DISPATCH,
        "    except BrokenPipeError:\n", "    except ZeroDivisionError:\n",
        "test_runner.py::test_a_command_whose_reader_has_gone_ends_without_a_word",
    ),
    # -- 6 links in a run's folder
    of(
        "6 drafts have random names", FILES,
        '(folder / f"{DRAFT}{secrets.token_hex(8)}").open("x+b")',
        '(folder / f"{DRAFT}0123").open("w+b")',
        "test_links.py::test_files_that_are_links_are_never_written_through",
    ),
    of(
        "6 drafts are opened exclusively", FILES,
        '.open("x+b")', '.open("w+b")',
        "test_links.py::test_a_draft_of_a_name_that_was_guessed_is_not_opened",
    ),
    of(
        "6 nothing is appended to a link", FILES,
        'getattr(os, "O_NOFOLLOW", 0) | ', "",
        "test_links.py::test_folders_and_files_to_append_to_follow_no_link",
    ),
    of(
        "6 checkpoints that are a link", CHECKPOINTS,
        "        refuse_link(folder)\n", "",
        "test_links.py::test_a_folder_that_is_a_link_is_refused_in_one_line[checkpoints]",
    ),
    of(
        "6 tensorboard that is a link", "lab/records/recorder.py",
        '        refuse_link(folder / "tensorboard")\n', "",
        "test_links.py::test_a_folder_that_is_a_link_is_refused_in_one_line[tensorboard]",
    ),
    of(
        "6 a run that is a link", CLAIM,
        "    refuse_link(folder)\n", "",
        "test_links.py::test_a_run_folder_that_is_a_link_is_refused",
    ),
    # -- 7 code from a folder
    of(
        "7 code of a network is not run", "lab/models/pretrained.py",
        '{"trust_remote_code": remote_code_is_trusted()}', "dict[str, bool]()",
        "test_security.py::test_code_of_a_model_folder_is_not_run_whoever_answers_yes",
    ),
    of(
        "7 but by a word of the command line", "lab/trust.py",
        "    before = os.environ.pop(_VARIABLE, None)\n",
        "    before = os.environ.get(_VARIABLE)\n",
        "test_security.py::test_code_is_run_when_the_command_line_says_so_and_by_no_other_word",
    ),
    # -- 8 images
    of(
        "8 formats", PIXELS,
        "Image.open(source, formats=FORMATS)", "Image.open(source)",
        "data/test_hostile_data.py::test_only_a_few_formats_and_sizes_are_decoded",
    ),
    of(
        "8 paths inside of the data", PIXELS,
        "    if not inside:\n", "    if False:\n",
        "data/test_hostile_data.py::test_an_image_file_outside_of_the_data_is_not_opened",
    ),
    of(
        "8 regular files", PIXELS,
        "        return open_regular(place)\n",
        '        return os.fdopen(os.open(place, os.O_RDONLY | os.O_NONBLOCK), "rb")\n',
        "data/test_hostile_data.py::test_an_image_file_outside_of_the_data_is_not_opened",
    ),
    # -- 9 what a config quotes
    of(
        "9 no config in a config", "lab/config/yaml.py",
        "    return _from_settings(parse_settings(content, source), source)\n",
        "    return _from_settings(yaml.safe_load(content), source)\n",
        "test_config.py::test_a_bad_file_is_one_line",
    ),
    of(
        "9 control characters", "lab/terminal.py",
        "self.stream.write(printable(text))", "self.stream.write(text)",
        "test_terminal.py::test_escape_sequences_never_reach_the_terminal",
    ),
    of(
        "9 a file that is no YAML", SETTINGS,
        "is not valid YAML{_place(error)}", "is not valid YAML, line 1: {content!r}",
        "test_config.py::test_a_file_that_is_no_yaml_is_not_quoted",
    ),
    # -- 11 hangs
    of(
        "11 aliases", SETTINGS,
        "        if isinstance(event, yaml.AliasEvent):\n", "        if False:\n",
        "test_config.py::test_a_bad_file_is_one_line",
    ),
    of(
        "11 regular files, before", READING,
        "    if not stat.S_ISREG(found.st_mode):\n", "    if False:\n",
        "test_reading.py::"
        "test_a_fifo_a_device_a_folder_and_a_dangling_link_are_refused_at_once",
    ),
    of(
        "11 regular files, after", READING,
        "    if not stat.S_ISREG(os.fstat(handle).st_mode):  # replaced since we looked\n",
        "    if False:\n",
        "test_reading.py::test_a_file_replaced_by_another_kind_before_it_is_opened_is_refused",
    ),
    of(
        "11 sizes", READING,
        "    if len(content) > limit:\n", "    if False:\n",
        "test_reading.py::test_a_file_is_read_up_to_a_limit_and_not_beyond",
    ),
    of(
        "11 archives that inflate", "lab/training/archive.py",
        "    if any(record.compress_type != zipfile.ZIP_STORED for record in records):\n",
        "    if False:\n",
        "test_security.py::test_a_checkpoint_that_inflates_is_refused_unread",
    ),
    of(
        "11 seeds of a demo", "lab/config/bounds.py",
        "MOST_SEEDS = 10_000\n", "MOST_SEEDS = 2**31 - 1\n",
        "test_cli.py::test_bad_input_is_one_line_and_exit_code_2[demo --seeds 2147483648]",
    ),
    # -- 12 memory
    of(
        "12 classes", "lab/data/load.py",
        "    if classes > most:\n", "    if False:\n",
        "data/test_hostile_data.py::"
        "test_more_names_of_classes_than_any_data_has_are_refused",
    ),
    of(
        "12 pixels", PIXELS,
        "            check_pixels(*picture.size)\n", "",
        "data/test_hostile_data.py::test_only_a_few_formats_and_sizes_are_decoded",
    ),
    of(
        "12 rows", PARQUET,
        "    if rows > max(MOST_ROWS, regular_size(path) // LEAST_ROW):\n", "    if False:\n",
        "data/test_hostile_data.py::test_a_file_that_unpacks_without_end_is_refused",
    ),
    of(
        "12 what a file unpacks to", PARQUET,
        "            if unpacked > most:\n", "            if False:\n",
        "data/test_hostile_data.py::test_a_file_that_unpacks_without_end_is_refused",
    ),
    of(
        "12 images in memory", "lab/data/load.py",
        "    if shape.in_memory:\n        need", "    if False:\n        need",
        "data/test_hostile_data.py::test_images_are_refused_with_the_estimate",
    ),
    of(
        "12 weights", "lab/models/estimate.py",
        "        COPIES * FLOAT * weights,\n", "        0,\n",
        "test_security.py::test_a_network_is_refused_with_the_estimate",
    ),
    # -- 13 tracebacks
    of(
        "13 environment.json", RUN,
        "        checked(found, ENVIRONMENT, str(path))\n", "        pass\n",
        "test_security.py::test_a_record_of_another_shape_is_one_line",
    ),
    of(
        "13 metrics.jsonl", RUN,
        '        checked(line, dict.fromkeys(line, float), f"{path}, line {number}")\n',
        "        pass\n",
        "test_security.py::test_a_record_of_another_shape_is_one_line",
    ),
    of(
        "13 sharpness.json, measured again", "lab/records/measured_once.py",
        "        checked(found, dict(shape or {}), str(path))\n", "",
        "test_crafted.py::test_a_measurement_of_another_shape_is_made_again",
    ),
    of(
        "13 sharpness.json, in a report", "lab/sharpness/kept.py",
        "{name: wanted[name] for name in wanted if name in values}", "{}",
        "test_crafted.py::test_a_spectrum_of_another_shape_is_named",
    ),
    of(
        "13 crafted checkpoints", "lab/training/resume.py",
        "    except Exception as error:  # whatever a checkpoint of others leads to\n",
        "    except ZeroDivisionError as error:\n",
        "test_crafted.py::test_a_crafted_checkpoint_is_one_line",
    ),
    of(
        "13 weights that are none", CHECKPOINTS,
        "or not _is_plain(value):\n", "or False:\n",
        "test_security.py::test_weights_that_are_none_are_refused",
    ),
    of(
        "13 integers of 400 digits in JSON", READING,
        "    if len(digits) > 20 or abs(number := int(digits)) > LARGEST_INTEGER:\n",
        "    number = int(digits)\n    if len(digits) > 10_000:\n",
        "test_reading.py::test_json_that_is_damaged_deep_or_huge_is_refused",
    ),
    of(
        "13 integers of 400 digits in YAML", SETTINGS,
        "    if isinstance(value, int) and abs(value) > LARGEST_SEED:\n", "    if False:\n",
        "test_config.py::test_a_bad_file_is_one_line",
    ),
    of(
        "13 WORLD_SIZE", "lab/torchrun.py",
        "    if not (text.isascii() and text.isdigit() ", "    if False and (text ",
        "test_terminal.py::test_a_bad_environment_is_one_line",
    ),
    of(
        "13 RANK of a single process", "lab/torchrun.py",
        "    if size == 1:\n        return 0\n", "    if size == 1:\n        size = 99\n",
        "test_terminal.py::test_the_errors_of_a_single_process_are_told_whatever_rank_says",
    ),
    of(
        "13 threads", "lab/config/schema.py",
        '        number("engine.threads", self.threads, 1, MOST_THREADS)\n', "",
        "test_config.py::test_a_bad_command_line_is_one_line",
    ),
    of(
        "13 a full disk under TensorBoard", "lab/records/recorder.py",
        "            if self._events is not None:\n                self._events.epoch(metrics)\n"
        "        except OSError as error:\n",
        "            if self._events is not None:\n                self._events.epoch(metrics)\n"
        "        except ZeroDivisionError as error:\n",
        "test_records.py::test_a_full_disk_under_tensorboard_fails_in_one_line",
    ),
    # -- 14 unclear
    of(
        "14 labels that are no numbers", "lab/data/columns.py",
        "    if not pa.types.is_integer(kind):\n", "    if False:\n",
        "data/test_hostile_data.py::test_labels_that_are_none_are_named",
    ),
    of(
        "14 a name like a formula", "lab/plotting/canvas.py",
        "        _names_are_plain(figure)\n", "",
        "test_odd_runs.py::test_a_name_that_looks_like_a_formula_is_drawn_as_it_is",
    ),
    of(
        "14 deep JSON", READING,
        "        _check_plain(values)\n", "",
        "test_reading.py::test_json_that_is_damaged_deep_or_huge_is_refused",
    ),
    of(
        "14 a dangling link", FILES,
        "    if not parent.exists():\n", "    if False:\n",
        "test_links.py::test_output_at_a_dangling_link_or_below_a_file_is_told_as_such",
    ),
    of(
        "14 below a file", FILES,
        "    if not parent.is_dir():\n", "    if False:\n",
        "test_links.py::test_output_at_a_dangling_link_or_below_a_file_is_told_as_such",
    ),
    of(
        "14 seeds beyond 64 bits", "lab/config/schema.py",
        '        number("seed", self.seed, 0, LARGEST_SEED)\n', "",
        "test_config.py::test_a_bad_command_line_is_one_line",
    ),
    of(
        "14 a run without metrics", "lab/report/runs.py",
        "    if not rows:\n", "    if False:\n",
        "test_odd_runs.py::test_a_report_of_a_run_without_metrics_is_one_line",
    ),
    of(
        "14 a read-only run", "lab/cli/sharpness.py",
        "            check_writable(found.folder)  # before the first of them is measured\n",
        "            pass\n",
        "test_odd_runs.py::test_a_read_only_run_is_refused_before_its_sharpness_is_measured",
    ),
    of(
        "14 a folder in the place of a file", "lab/records/measured_once.py",
        "    if path.is_dir():\n", "    if False:\n",
        "test_crafted.py::"
        "test_a_folder_in_the_place_of_a_measurement_is_refused_before_measuring",
    ),
]  # fmt: skip


if __name__ == "__main__":
    sys.exit(main(REMEDIES))
